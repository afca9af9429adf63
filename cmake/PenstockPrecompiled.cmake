# Parsing the headers of CAF and Asio, and those of ours that include them, takes half of the compile time of a source
# of actors/. With PENSTOCK_PCH they are parsed once for all targets. Each source still includes what it uses: the
# preset `dev` and tools/includes compile without PENSTOCK_PCH.

option(PENSTOCK_PCH "Parse the heavy headers once. For builds from nothing" OFF)

if(PENSTOCK_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The compiler spends a tenth of its time on garbage collection, which is worthwhile only above this heap size (KiB).
  target_compile_options(penstock_build_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=786432>)
endif()

# With it, every source of a target begins with this header; such targets link Asio, because the header contains
# Asio's macros.
if(PENSTOCK_PCH AND PENSTOCK_ACTORS)
  if(PENSTOCK_CCACHE)
    # Otherwise ccache caches no source that uses a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${penstock_ccache};CCACHE_SLOPPINESS=pch_defines,time_macros;${PENSTOCK_CCACHE}")
  endif()
  add_library(penstock_precompiled OBJECT "${CMAKE_CURRENT_LIST_DIR}/precompiled/precompiled.cpp")
  target_link_libraries(penstock_precompiled PRIVATE
    penstock_build_options penstock_asio CAF::core fmt::fmt tl::expected nlohmann_json::nlohmann_json)
  target_precompile_headers(penstock_precompiled PRIVATE "${CMAKE_CURRENT_LIST_DIR}/precompiled/heavy.hpp")
endif()

# penstock_precompile(TARGET...): not for targets with HOT sources. GCC 12 crashes if such a source uses a header precompiled without -O3.
function(penstock_precompile)
  if(TARGET penstock_precompiled)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} REUSE_FROM penstock_precompiled)
      if(PENSTOCK_CCACHE)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
      endif()
    endforeach()
  endif()
endfunction()
