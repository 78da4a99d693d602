mla_test(conformance routing)
mla_test(conformance rope)
