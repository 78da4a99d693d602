mla_tests(layers parts TESTS transformer fp8)
