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
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PENSTOCK_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${PENSTOCK_CCACHE}")
endif()

add_library(penstock_build_options INTERFACE)
target_include_directories(penstock_build_options INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/runtime/include")
target_compile_options(penstock_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${PENSTOCK_WERROR}>>:-Werror>
  # The same bits on every machine: no contraction of a * b + c behind our back.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # "literal" + string is reported as overlapping memory (GCC bug 105651).
  target_compile_options(penstock_build_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(PENSTOCK_SANITIZE STREQUAL "address")
  target_compile_options(penstock_build_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(penstock_build_options INTERFACE -fsanitize=address,undefined)
elseif(PENSTOCK_SANITIZE STREQUAL "thread")
  target_compile_options(penstock_build_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(penstock_build_options INTERFACE -fsanitize=thread)
endif()

# penstock_library(NAME SOURCES ... LINKS ...): one folder of runtime/ or actors/ as a static library.
function(penstock_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC penstock_build_options ${arg_LINKS})
endfunction()

# penstock_test(NAME LABEL unit|process|install|gpu|soak SOURCES ... LINKS ... [TIMEOUT s]): one Catch2 program, each
# of whose test cases is a ctest test.
function(penstock_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "LABEL;TIMEOUT" "SOURCES;LINKS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE penstock_build_options ${arg_LINKS} Catch2::Catch2WithMain)
  if(PENSTOCK_SANITIZE)
    # What is tried is instrumented; of the tests themselves that would triple the compile time.
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    # Tests are compiled more often than they run; what they test keeps the build type's flags.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(properties LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  catch_discover_tests(${name} TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
