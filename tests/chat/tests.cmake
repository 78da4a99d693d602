mla_test(chat template UP_TO chat)
mla_test(chat provenance UP_TO chat)
mla_test(chat bounds UP_TO chat)
mla_test(chat load UP_TO chat LABELS threads)
