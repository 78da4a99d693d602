mla_test(layers transformer)
