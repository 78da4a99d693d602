mla_tests(verify parts TESTS attention_oracle bounds faults fixtures report sharing_faults reading)
