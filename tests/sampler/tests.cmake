mla_tests(sampler parts TESTS sampler penalties)
