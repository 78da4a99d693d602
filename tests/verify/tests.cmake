mla_test(verify faults LABELS kernels)
mla_test(verify fixtures)
mla_test(verify report)
mla_test(verify reading)
