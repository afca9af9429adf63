# Tests written in Python: every test method of a file is one ctest test, and its name is the test's sentence. If
# each process would import a lot, a whole file is one test.

# penstock_find_python(VARIABLE [FIRST INTERPRETER] [MODULE ...]): an interpreter that has these modules; empty if there is none. The one
# on PATH may not be the distribution's, and may be a script that looks for the interpreter each time: returns
# what that finds.
function(penstock_find_python variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FIRST" "")
  string(JOIN ", " modules sys ${arg_UNPARSED_ARGUMENTS})
  set(${variable} "" PARENT_SCOPE)
  foreach(candidate IN ITEMS ${arg_FIRST} python3 /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import ${modules}; print(sys.executable)"
      RESULT_VARIABLE status OUTPUT_VARIABLE interpreter ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(status EQUAL 0)
      set(${variable} "${interpreter}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# penstock_tests_of_python_file(FILE [TOGETHER] [THOROUGH] [LOCK NAME] [COST NUMBER] [PREFIX TEXT] [NAME TEXT] [CLASSES REGEX] [FIXTURE NAME]
# PYTHON PROGRAM LABEL LABEL TIMEOUT SECONDS ENVIRONMENT VARIABLES)
# FILE.py is in the current folder; The names of the tests begin with PREFIX and FILE, or with NAME. CLASSES: only
# classes whose names match. FIXTURE: the tests require it. TIMEOUT: for each test method. TOGETHER: all of them run in
# one process, which lists them; ctest shows the list if one fails. THOROUGH: they take many seconds of processor time,
# so only tools/test --all runs them (label thorough). LOCK: tests with the same lock run one at a time. COST: ctest
# starts the tests with the highest cost first, so that none of them runs alone at the end.
function(penstock_tests_of_python_file file)
  cmake_parse_arguments(PARSE_ARGV 1 test "TOGETHER;THOROUGH" "PREFIX;NAME;CLASSES;FIXTURE;PYTHON;LABEL;TIMEOUT;LOCK;COST" "ENVIRONMENT")
  set(program "${CMAKE_CURRENT_SOURCE_DIR}/${file}.py")
  set(labels ${test_LABEL})
  if(test_THOROUGH)
    list(APPEND labels thorough)
  endif()
  set(properties SKIP_RETURN_CODE 77)
  if(test_LOCK)
    list(APPEND properties RESOURCE_LOCK "${test_LOCK}")
  endif()
  if(test_FIXTURE)
    list(APPEND properties FIXTURES_REQUIRED "${test_FIXTURE}")
  endif()
  if(NOT test_NAME)
    set(test_NAME "${test_PREFIX}${file}")
  endif()
  if(NOT test_COST)
    set(test_COST 1)  # before the unit tests: see penstock_test
  endif()
  list(APPEND properties COST ${test_COST})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file}.py)
  file(STRINGS ${file}.py lines REGEX "^(class .*|    def test_.*|if __name__ == .*)")
  if(NOT lines MATCHES "__main__")
    message(FATAL_ERROR "${file}.py runs no test: it ends without a call of main()")
  endif()
  if(test_TOGETHER)
    add_test(NAME "${test_NAME}" COMMAND ${test_PYTHON} -B "${program}")
    set_tests_properties("${test_NAME}" PROPERTIES ${properties} TIMEOUT 1800
      LABELS "${labels}" ENVIRONMENT "${test_ENVIRONMENT};PENSTOCK_TEST_LIMIT=${test_TIMEOUT}")
    return()
  endif()
  foreach(line IN LISTS lines)
    if(line MATCHES "^class ([A-Za-z]+)")
      set(class ${CMAKE_MATCH_1})
    elseif(test_CLASSES AND NOT class MATCHES "^(${test_CLASSES})$")
      continue()
    elseif(line MATCHES "def (test_[a-z0-9_]+)")
      set(method ${CMAKE_MATCH_1})
      string(REGEX REPLACE "^test_" "" sentence ${method})
      string(REPLACE "_" " " sentence ${sentence})
      set(name "${test_NAME}: ${sentence}")
      add_test(NAME "${name}" COMMAND ${test_PYTHON} -B "${program}" ${class}.${method})
      set_tests_properties("${name}" PROPERTIES ${properties} LABELS "${labels}" TIMEOUT ${test_TIMEOUT}
        ENVIRONMENT "${test_ENVIRONMENT}")
    endif()
  endforeach()
endfunction()

# penstock_soak_test(NAME FILE METHODS CLASS.METHOD ... PYTHON PROGRAM TIMEOUT SECONDS ENVIRONMENT VARIABLES): runs these tests of FILE.py
# again, as NAME and for longer. A test that FILE.py lacks is an error at configure time: otherwise it would go unnoticed until the next
# soak.
function(penstock_soak_test name file)
  cmake_parse_arguments(PARSE_ARGV 2 test "" "PYTHON;TIMEOUT" "METHODS;ENVIRONMENT")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file}.py)
  file(STRINGS ${file}.py lines REGEX "^    def test_.*")
  foreach(method IN LISTS test_METHODS)
    string(REGEX REPLACE "^.*\\." "" function ${method})
    if(NOT lines MATCHES "def ${function}\\(")
      message(FATAL_ERROR "the soak test \"${name}\" is ${method}, which ${file}.py does not have")
    endif()
  endforeach()
  add_test(NAME "${name}" COMMAND ${test_PYTHON} -B "${CMAKE_CURRENT_SOURCE_DIR}/${file}.py" ${test_METHODS})
  set_tests_properties("${name}" PROPERTIES LABELS soak SKIP_RETURN_CODE 77 TIMEOUT ${test_TIMEOUT} ENVIRONMENT "${test_ENVIRONMENT}")
endfunction()
