# Read by cpack once for each kind of package.

if(CPACK_GENERATOR STREQUAL "DEB")
  # A tree that brings its own libz has no business in /usr/lib. One link makes the command known.
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/penstock)
  set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/LinkIntoUsr.cmake")
endif()
