# Run by cpack when the tree of the .deb is complete: links from /usr to what people and shells look for there.

set(root "${CPACK_TEMPORARY_DIRECTORY}")
foreach(file bin/penstock share/man/man1/penstock.1 share/bash-completion/completions/penstock)
  if(EXISTS "${root}/opt/penstock/${file}")
    get_filename_component(folder "${root}/usr/${file}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    file(CREATE_LINK "/opt/penstock/${file}" "${root}/usr/${file}" SYMBOLIC)
  endif()
endforeach()
