# command_test runs the command itself.
add_dependencies(test_lab attune_command)
