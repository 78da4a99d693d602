mla_test_harness(attention harness.cc oracle.cc)
mla_tests(attention kernels TESTS attention bf16 coverage invariance kept choose kernels profile UP_TO attention LABELS kernels
  SOURCES ${harness})
mla_test(attention workers UP_TO attention LABELS threads SOURCES ${harness})
mla_test(attention allocation SOURCES ${harness})
mla_tests(attention parts TESTS kv_b rope cost form_table absorbed_plan SOURCES ${harness})
