# What gets installed: two shared libraries, the programs, headers, a CMake package, documents; and packages of all that.
#
# The tree can be copied anywhere: every library beyond glibc and the compiler's own is inside a program, inside one of our
# libraries, or in lib/ (cmake/install/BundleLibraries.cmake). So libraries go to lib/, not to a folder with the
# machine's name.

set(PENSTOCK_INSTALL_CMAKE_DIR lib/cmake/penstock)
set(PENSTOCK_LIBEXEC_DIR libexec/penstock)
find_program(PENSTOCK_PATCHELF patchelf)
mark_as_advanced(PENSTOCK_PATCHELF)

# Run paths are relative to the file that needs them. The old tag (DT_RPATH) also applies to what our libraries load in
# turn; with the new one (DT_RUNPATH), a bundled library would load the machine's copy of its neighbour.
function(penstock_relocatable target from_there_to_lib)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${from_there_to_lib}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_INSTALLED_TARGETS ${target})
endfunction()

# penstock_install_program(TARGET bin|libexec): libexec is where sessions look for the programs that they start.
function(penstock_install_program target place)
  if(place STREQUAL "libexec")
    penstock_relocatable(${target} "$ORIGIN/../../lib")
    install(TARGETS ${target} RUNTIME DESTINATION libexec/penstock COMPONENT runtime)
  else()
    penstock_relocatable(${target} "$ORIGIN/../lib")
    install(TARGETS ${target} RUNTIME DESTINATION bin COMPONENT tools)
  endif()
endfunction()

# penstock_shared_library(TARGET EXPORT name CONTAINS folders... LINKS folders...): what users' programs link. It exports only what CONTAINS
# marks with PENSTOCK_API, and no symbol of the libraries inside.
function(penstock_shared_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXPORT" "CONTAINS;LINKS")
  set(objects ${arg_CONTAINS})
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  add_library(${target} SHARED ${objects})
  add_library(penstock::${arg_EXPORT} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX EXPORT_NAME ${arg_EXPORT} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/install/exports.map")
  if(NOT DEFINED SKBUILD)  # a wheel has no links: one file under the one name that others need
    set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION})
  endif()
  target_link_libraries(${target} PRIVATE ${arg_CONTAINS} ${arg_LINKS})
  target_link_options(${target} PRIVATE
    "-Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/install/exports.map" -Wl,--no-undefined)
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include> $<INSTALL_INTERFACE:include>)
  penstock_relocatable(${target} "$ORIGIN")
  install(TARGETS ${target} EXPORT penstockTargets
    LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT development)
endfunction()

# For device programs, which need only the headers.
add_library(penstock_headers INTERFACE)
add_library(penstock::headers ALIAS penstock_headers)
set_target_properties(penstock_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(penstock_headers INTERFACE cxx_std_20)
target_include_directories(penstock_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include> $<INSTALL_INTERFACE:include>)
install(TARGETS penstock_headers EXPORT penstockTargets)

install(DIRECTORY runtime/include/penstock DESTINATION include COMPONENT development)
install(EXPORT penstockTargets NAMESPACE penstock:: DESTINATION ${PENSTOCK_INSTALL_CMAKE_DIR} COMPONENT development)
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/install/penstockConfig.cmake.in penstockConfig.cmake
  INSTALL_DESTINATION ${PENSTOCK_INSTALL_CMAKE_DIR} PATH_VARS PENSTOCK_LIBEXEC_DIR)
write_basic_package_version_file(penstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/penstockConfig.cmake" "${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake"
  DESTINATION ${PENSTOCK_INSTALL_CMAKE_DIR} COMPONENT development)

# The same for builds without CMake: pkg-config --cflags --libs penstock (they must request C++20 themselves).
function(penstock_pkg_config pc_name pc_library pc_description)
  configure_file(cmake/install/penstock.pc.in ${pc_name}.pc @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${pc_name}.pc" DESTINATION lib/pkgconfig COMPONENT development)
endfunction()
penstock_pkg_config(penstock penstock "sessions: feed GPUs from loader worker processes")
penstock_pkg_config(penstock-worker penstock_worker "your own Dataset and worker program, without CUDA")

install(FILES LICENSE README.md DESTINATION share/doc/penstock COMPONENT runtime)
if(PENSTOCK_NOTICES)  # licences of what is linked statically (tools/release)
  install(DIRECTORY "${PENSTOCK_NOTICES}/" DESTINATION share/doc/penstock/third-party COMPONENT runtime)
endif()
install(DIRECTORY docs/ DESTINATION share/doc/penstock/docs COMPONENT development)
install(DIRECTORY examples/ DESTINATION share/penstock/examples COMPONENT development)

# Called when all targets exist.
function(penstock_install_bundled_libraries)
  get_property(targets GLOBAL PROPERTY PENSTOCK_INSTALLED_TARGETS)
  set(files ${targets})
  list(TRANSFORM files REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  install(CODE "
    set(penstock_files \"${files}\")
    set(penstock_patchelf \"${PENSTOCK_PATCHELF}\")" COMPONENT runtime)
  install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install/BundleLibraries.cmake" COMPONENT runtime)
endfunction()

set(CPACK_PACKAGE_NAME penstock)
set(CPACK_PACKAGE_VENDOR penstock)
set(CPACK_PACKAGE_CONTACT "the penstock authors <penstock@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "feeds GPUs from supervised loader processes")
set(CPACK_PACKAGE_DESCRIPTION "Loader worker processes fill shared, page-locked memory; one process alone uses the GPU.
Workers that crash or hang are replaced and their batches loaded again, in the same order, to the same bytes.")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_PACKAGE_FILE_NAME "penstock-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/install/CPackOptions.cmake")
set(CPACK_DEB_COMPONENT_INSTALL OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Nothing depends on the bundled libraries, which lie outside the linker's folders.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS OFF)
# Loaded only if a group of ranks on several hosts has a secret, a path is a URL, or loader hosts compress batches.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libssl3t64 | libssl3, libcurl4t64 | libcurl4")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "liblz4-1, libwebp7, libzstd1")
include(CPack)
