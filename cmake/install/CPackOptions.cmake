# Read by cpack once for each kind of package.

if(CPACK_GENERATOR STREQUAL "DEB")
  # A tree that brings its own libz has no business in /usr/lib. One link makes the command known.
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/penstock)
  # dpkg-shlibdeps (dpkg-dev) knows the versions; without it the names have to do.
  find_program(penstock_shlibdeps dpkg-shlibdeps)
  if(NOT penstock_shlibdeps)
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6, libgcc-s1, libstdc++6")
  endif()
  set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/LinkIntoUsr.cmake")
endif()
