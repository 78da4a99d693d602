mla_test(structure structure SOURCES ${CMAKE_CURRENT_LIST_DIR}/rules.cc)
