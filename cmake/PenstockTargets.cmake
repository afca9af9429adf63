# How this project builds: one place for the language, warnings, sanitizers and output folders.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

find_program(PENSTOCK_CCACHE ccache)
if(PENSTOCK_CCACHE)
  # Let ccache use the compiler's list of dependencies; otherwise it preprocesses each source first.
  set(penstock_ccache "${CMAKE_COMMAND};-E;env;CCACHE_DEPEND=1")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${penstock_ccache};${PENSTOCK_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${penstock_ccache};${PENSTOCK_CCACHE}")
endif()

# Errors only with the compiler that the project is developed with, because other compilers warn about other things.
set(penstock_werror OFF)
if(PENSTOCK_WERROR AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12
   AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(penstock_werror ON)
elseif(PENSTOCK_WERROR)
  message(STATUS "Warnings are not errors here: PENSTOCK_WERROR is for GCC 12")
endif()

option(PENSTOCK_UNITY "Compile up to 48 sources of a target at a time: less than half the time" ON)

add_library(penstock_build_options INTERFACE)
target_include_directories(penstock_build_options INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/runtime/include")
target_compile_options(penstock_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wimplicit-fallthrough>
  # In a unity build -Wshadow would report names of different sources.
  $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<BOOL:${PENSTOCK_UNITY}>,-Wno-subobject-linkage,-Wshadow>>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${penstock_werror}>>:-Werror>
  # The same bits on every machine: no implicit contraction of a * b + c.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # "literal" + string is reported as overlapping memory (GCC bug 105651).
  target_compile_options(penstock_build_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(PENSTOCK_SANITIZE OR CMAKE_CXX_FLAGS_RELEASE MATCHES "-Og")
  # -Og compiles in two thirds of -O1's time, but cannot inline what xxHash requires to be inlined.
  target_compile_definitions(penstock_build_options INTERFACE XXH_NO_INLINE_HINTS=1)
endif()
if(PENSTOCK_SANITIZE STREQUAL "address")
  target_compile_options(penstock_build_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(penstock_build_options INTERFACE -fsanitize=address,undefined)
elseif(PENSTOCK_SANITIZE STREQUAL "thread")
  # GCC warns of each fence in Asio's headers, because ThreadSanitizer does not support fences.
  target_compile_options(penstock_build_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  target_link_options(penstock_build_options INTERFACE -fsanitize=thread)
endif()

option(PENSTOCK_FUZZ "Build the fuzz targets as libFuzzer programs (clang)" OFF)
if(PENSTOCK_FUZZ)
  target_compile_options(penstock_build_options INTERFACE -fsanitize=fuzzer-no-link)  # libFuzzer sees which branches an input reaches
endif()

# penstock_unity(TARGET [BATCH n] [ALONE ...] [MODELS ...]): with PENSTOCK_UNITY, compiles the sources of a target in
# batches of equal size, at most n (48) sources each. ALONE: sources whose names clash with those of other sources;
# they form a separate batch. MODELS: compiled one by one.
function(penstock_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "BATCH" "ALONE;MODELS")
  if(NOT arg_BATCH)
    set(arg_BATCH 48)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PENSTOCK_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(REMOVE_ITEM sources ${arg_ALONE} ${arg_MODELS})
  list(LENGTH sources length)
  math(EXPR batches "(${length} + ${arg_BATCH} - 1) / ${arg_BATCH}")
  set(number 0)
  foreach(source IN LISTS sources)
    math(EXPR batch "${number} * ${batches} / ${length}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${batch})
    math(EXPR number "${number} + 1")
  endforeach()
  set_source_files_properties(${arg_ALONE} PROPERTIES UNITY_GROUP alone)
endfunction()

# penstock_library(NAME SOURCES ... LINKS ... [HOT ...] [ALONE ...]): one folder of runtime/ or actors/ as a static library. HOT: sources
# through which every byte of a batch passes; they are compiled with -O3 where the rest has -Og (preset quickstart).
function(penstock_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HOT;LINKS;ALONE")
  if(arg_HOT AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-Og")
    add_library(${name}_hot OBJECT ${arg_HOT})
    target_link_libraries(${name}_hot PRIVATE penstock_build_options ${arg_LINKS})
    target_include_directories(${name}_hot SYSTEM PRIVATE $<TARGET_PROPERTY:${name},INCLUDE_DIRECTORIES>)
    target_compile_options(${name}_hot PRIVATE $<$<CONFIG:Release>:-O3>)
    penstock_unity(${name}_hot)
    set(arg_HOT $<TARGET_OBJECTS:${name}_hot>)
  endif()
  add_library(${name} STATIC ${arg_SOURCES} ${arg_HOT} ${arg_ALONE})
  target_link_libraries(${name} PUBLIC penstock_build_options ${arg_LINKS})
  penstock_unity(${name} ALONE ${arg_ALONE})
endfunction()

# What tools/test builds under sanitizers: only the unit tests and what they need.
add_custom_target(unit_tests)

# penstock_test(NAME LABEL unit|process|install|gpu|soak SOURCES ... LINKS ... [ALONE ...] [MODELS ...]
# [TIMEOUT s]): one Catch2 program. Each of its test cases is a ctest test. Under sanitizers, where starting a process takes longer than
# most tests, the whole program is one ctest test, and names the test cases that fail. ALONE: sources that are compiled one by one, because
# their names clash. MODELS: sources that compute for seconds; also compiled one by one, and optimised under sanitizers.
function(penstock_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "LABEL;TIMEOUT" "SOURCES;ALONE;MODELS;LINKS")
  # The linker keeps the first of several copies of a template's function: the optimised one.
  add_executable(${name} ${arg_MODELS} ${arg_SOURCES} ${arg_ALONE})
  penstock_unity(${name} MODELS ${arg_ALONE} ${arg_MODELS})
  target_link_libraries(${name} PRIVATE penstock_build_options ${arg_LINKS} Catch2::Catch2WithMain)
  if(PENSTOCK_SANITIZE)
    # Only the tested code is instrumented: instrumenting the tests as well would triple the compile time.
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
    set_source_files_properties(${arg_MODELS} PROPERTIES COMPILE_OPTIONS -O1)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    # Tests are compiled more often than they run; what they test keeps the build type's flags.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  if(PENSTOCK_SANITIZE AND NOT arg_LABEL STREQUAL "unit")
    # Not in `all`, because tools/test would not run it: build it by name and run it by hand.
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  if(arg_LABEL STREQUAL "unit")
    add_dependencies(unit_tests ${name})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(properties LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 4)  # Catch2 sets the last one itself only from 3.5 on.
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(arg_LABEL STREQUAL "process")
    # These mostly wait. They start first, and the unit tests, which compute, fill the gaps that remain. (ctest
    # measures costs itself, but cannot read them back for tests whose names contain blanks.)
    list(APPEND properties COST 1)
  endif()
  if(PENSTOCK_SANITIZE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties} TIMEOUT 1200)
    return()
  endif()
  catch_discover_tests(${name} TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
