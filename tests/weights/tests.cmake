mla_tests(weights parts TESTS weights read_ahead fp8)
