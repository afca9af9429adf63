# cpack reads this once for each kind of package.

if(CPACK_GENERATOR STREQUAL "DEB")
  # Not to /usr/lib, because the tree has its own libz. One link puts the command on PATH.
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/penstock)
  # dpkg-shlibdeps (package dpkg-dev) determines the required versions, and cpack uses `file` to find what it examines.
  # cpack fails if only one of them is installed, so unless both are, we name the packages ourselves.
  find_program(penstock_shlibdeps dpkg-shlibdeps)
  find_program(penstock_file file)
  if(NOT penstock_shlibdeps OR NOT penstock_file)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6, libgcc-s1, libstdc++6")
  endif()
  set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/LinkIntoUsr.cmake")
endif()
