mla_test(weights weights)
mla_test(weights read_ahead)
mla_test(weights fp8)
