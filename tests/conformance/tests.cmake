mla_tests(conformance parts TESTS families routing rope)
