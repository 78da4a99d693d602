mla_test(server request UP_TO engine)
mla_test(server reply UP_TO engine)
mla_test(server http UP_TO engine LABELS threads)
