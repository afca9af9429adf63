# Read by cpack once for each kind of package.

if(CPACK_GENERATOR STREQUAL "DEB")
  # A tree that brings its own libz has no business in /usr/lib. One link makes the command known.
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/penstock)
  # dpkg-shlibdeps (package dpkg-dev) knows the versions that are needed, and cpack asks `file` what to show it; without
  # both the names have to do. cpack itself fails where it has the one and not the other.
  find_program(penstock_shlibdeps dpkg-shlibdeps)
  find_program(penstock_file file)
  if(NOT penstock_shlibdeps OR NOT penstock_file)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6, libgcc-s1, libstdc++6")
  endif()
  set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/LinkIntoUsr.cmake")
endif()
