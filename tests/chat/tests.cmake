mla_tests(chat parts TESTS template provenance bounds seen_turns UP_TO chat)
mla_test(chat load UP_TO chat LABELS threads)
