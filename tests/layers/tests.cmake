mla_test(layers transformer)
mla_test(layers fp8)
