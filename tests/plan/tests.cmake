mla_tests(plan parts TESTS exact published shape memory work ranks)
