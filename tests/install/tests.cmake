# One test, by itself: it runs compilers. Not under sanitizers, where it takes half a minute and runs what other tests do.
if(MLA_SANITIZE)
  return()
endif()
add_test(NAME install.examples COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/install_test.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}
  ${CMAKE_CXX_COMPILER} ${CMAKE_BUILD_TYPE})
set_tests_properties(install.examples PROPERTIES LABELS install TIMEOUT 900)
