set(harness ${CMAKE_CURRENT_LIST_DIR}/harness.cc)
mla_test(engine golden)
mla_test(engine invariance LABELS threads SOURCES ${harness})
mla_test(engine requests)
