# command_test runs the command itself.
add_dependencies(test_lab_try attune_command faulty_plugin)
