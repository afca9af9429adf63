# Run by `cmake --install`: puts every library that the installed files need, and that a plain machine may lack, into lib/,
# with its licence. penstock_files and penstock_patchelf come from PenstockInstall.cmake.

# glibc belongs to the machine. So do the compiler's libraries: a program that links ours brings its own, newer ones.
set(of_the_machine "^(ld-linux.*|lib(c|m|pthread|dl|rt|resolv|gcc_s|stdc\\+\\+))\\.so")

set(programs "")
set(libraries "")
foreach(file IN LISTS penstock_files)
  if(file MATCHES "\\.so(\\.|$)")
    list(APPEND libraries "${file}")
  else()
    list(APPEND programs "${file}")
  endif()
endforeach()
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} LIBRARIES ${libraries}
  PRE_EXCLUDE_REGEXES "${of_the_machine}" RESOLVED_DEPENDENCIES_VAR found)

set(names "")
foreach(path IN LISTS found)
  get_filename_component(name "${path}" NAME)
  list(APPEND names ${name})
endforeach()

set(lib "${CMAKE_INSTALL_PREFIX}/lib")
foreach(path IN LISTS found)
  get_filename_component(name "${path}" NAME)
  file(REAL_PATH "${path}" file)
  # Installed under the one name by which others load it, so no symlinks are needed.
  file(INSTALL DESTINATION "${lib}" TYPE FILE RENAME "${name}" FILES "${file}")

  # A bundled library that needs another one has to find that one, too.
  execute_process(COMMAND objdump -p "${file}" OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  set(needs "")
  foreach(other IN LISTS names)
    string(FIND "${headers}" " ${other}\n" place)
    if(place GREATER -1 AND NOT other STREQUAL name)
      list(APPEND needs ${other})
    endif()
  endforeach()
  if(needs AND penstock_patchelf)
    execute_process(COMMAND "${penstock_patchelf}" --set-rpath "$ORIGIN" "$ENV{DESTDIR}${lib}/${name}"
      COMMAND_ERROR_IS_FATAL ANY)
  elseif(needs)
    message(STATUS "lib/${name} finds lib/${needs} through the program that loads it (patchelf would give it its own path)")
  endif()

  # Distributions keep the licence with the package that the library came from. Older ones know /usr/lib as /lib.
  string(REGEX REPLACE "^/usr" "" short_name "${file}")
  execute_process(COMMAND dpkg-query -S "${file}" "${short_name}" OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE status)
  string(REGEX MATCH "^[^:]+" package "${owner}")
  if(package AND EXISTS "/usr/share/doc/${package}/copyright")
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/share/doc/penstock/third-party" TYPE FILE
      RENAME "${name}.copyright" FILES "/usr/share/doc/${package}/copyright")
  endif()
endforeach()
