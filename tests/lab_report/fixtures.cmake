# peer_bench_test runs the command itself.
add_dependencies(test_lab_report attune_command)
