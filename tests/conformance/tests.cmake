mla_test(conformance families)
mla_test(conformance routing)
mla_test(conformance rope)
