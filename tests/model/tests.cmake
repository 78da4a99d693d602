mla_test(model model)
