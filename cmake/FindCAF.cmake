# Finds the C++ Actor Framework: 1.x by its own CMake package, or 0.17, which the distributions ship without one.
# -DCAF_ROOT=FOLDER says where. Defines CAF::core and CAF_VERSION; with CAF 1, also CAF::test if CAF was built with it.
# Only the core is used: the transport between processes is penstock's own (docs/decisions/0001-own-framing.md). Tested:
# 0.17 with all tests; 1.1 with test_caf, test_protocol and test_gpu_owner only
# (docs/decisions/0032-caf-old-and-new.md).

find_package(CAF CONFIG QUIET)
if(NOT CAF_FOUND)
  find_path(CAF_INCLUDE_DIR caf/actor_system.hpp)
  find_library(CAF_CORE_LIBRARY NAMES caf_core caf_core_static)
  if(CAF_INCLUDE_DIR AND EXISTS "${CAF_INCLUDE_DIR}/caf/config.hpp")
    # CAF_VERSION is major * 10000 + minor * 100 + patch.
    file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" caf_version_line REGEX "#define CAF_VERSION [0-9]+")
    if(caf_version_line MATCHES "CAF_VERSION ([0-9]+)")
      math(EXPR caf_major "${CMAKE_MATCH_1} / 10000")
      math(EXPR caf_minor "${CMAKE_MATCH_1} / 100 % 100")
      math(EXPR caf_patch "${CMAKE_MATCH_1} % 100")
      set(CAF_VERSION "${caf_major}.${caf_minor}.${caf_patch}")
    endif()
  endif()
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(CAF REQUIRED_VARS CAF_CORE_LIBRARY CAF_INCLUDE_DIR VERSION_VAR CAF_VERSION)
  mark_as_advanced(CAF_INCLUDE_DIR CAF_CORE_LIBRARY)
endif()

if(CAF_FOUND AND NOT CAF_VERSION MATCHES "^(0\\.17|1\\.[0-9]+)\\.")
  if(CAF_DIR)
    set(caf_folder "${CAF_DIR}")
  else()
    set(caf_folder "${CAF_INCLUDE_DIR}")
  endif()
  message(FATAL_ERROR
    "CAF ${CAF_VERSION} was found in ${caf_folder}, but penstock is written for 0.17 and 1.x. Install the package libcaf-dev, or name "
    "the folder where one of these is installed: -DCAF_ROOT=FOLDER")
endif()
if(CAF_FOUND AND NOT CAF_VERSION VERSION_LESS 1)
  message(WARNING "CAF ${CAF_VERSION}: penstock is fully tested with CAF 0.17; with CAF 1.1, only some tests have been run")
endif()

if(CAF_FOUND AND PENSTOCK_TESTS AND NOT CAF_VERSION VERSION_LESS 1 AND NOT TARGET CAF::test)
  message(FATAL_ERROR "CAF ${CAF_VERSION} in ${CAF_DIR} has no library CAF::test, which the tests need: -DPENSTOCK_TESTS=OFF, or install it")
endif()

if(CAF_FOUND AND NOT TARGET CAF::core)
  find_package(Threads REQUIRED)
  add_library(CAF::core UNKNOWN IMPORTED)
  set_target_properties(CAF::core PROPERTIES IMPORTED_LOCATION "${CAF_CORE_LIBRARY}")
  target_include_directories(CAF::core SYSTEM INTERFACE "${CAF_INCLUDE_DIR}")
  target_link_libraries(CAF::core INTERFACE Threads::Threads)
endif()
