mla_tests(server parts TESTS request reply UP_TO engine)
mla_test(server http UP_TO engine LABELS threads)
