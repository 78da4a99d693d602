mla_tests(reference parts TESTS golden properties readings rope routing streamed)
