mla_test(chat template UP_TO engine)
