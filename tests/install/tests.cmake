# One test, by itself: it runs compilers.
set(install_flags "")
if(MLA_SANITIZE)
  set(install_flags "-fsanitize=${MLA_SANITIZE}")
endif()
add_test(NAME install.examples COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/install_test.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}
  ${CMAKE_CXX_COMPILER} "${install_flags}" ${CMAKE_BUILD_TYPE})
set_tests_properties(install.examples PROPERTIES LABELS install TIMEOUT 900)
