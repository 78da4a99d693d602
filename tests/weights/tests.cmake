mla_test(weights weights)
