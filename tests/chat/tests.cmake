mla_test(chat template UP_TO engine)
mla_test(chat provenance UP_TO engine)
mla_test(chat bounds UP_TO engine)
mla_test(chat load UP_TO engine LABELS threads)
