// The rungs of the ladder as functions, each compiled for the emulator from its own file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/try/kernel_file.hpp"

namespace attune::ladder {

// Runs one thread, with the arguments as a launch hands them over.
using Thread = void (*)(const std::vector<lab::KernelArgument>& arguments);

// By name of the file without .cu; new_kernel is what `attune try --new` writes. Of 13_persistent there are also those
// that `attune ladder` takes something away from: "13_persistent SWIZZLE=0".
using Rungs = std::map<std::string, Thread>;
Rungs rungs_f16_d64();
Rungs rungs_f16_d128();
Rungs rungs_bf16_d64();
Rungs rungs_bf16_d128();
// The starting file with a mistake in each, for float16 and head dimension 64 (fixtures.cmake).
Rungs mistakes();

template <auto kernel, typename... Parameters>
void call(void (*)(Parameters...), const std::vector<lab::KernelArgument>& arguments) {
  if (arguments.size() != sizeof...(Parameters)) throw std::runtime_error("the number of arguments is another");
  size_t next = 0;
  const auto take = [&]<typename T>() {
    const lab::KernelArgument& argument = arguments[next++];
    if (argument.size != sizeof(T)) throw std::runtime_error("the size of an argument is another");
    T value;
    std::memcpy(&value, argument.bytes.data(), sizeof value);
    return value;
  };
  std::tuple<Parameters...> values { take.template operator()<Parameters>()... };  // in order: braces
  std::apply(kernel, values);
}
template <auto kernel>
void thread(const std::vector<lab::KernelArgument>& arguments) {
  call<kernel>(kernel, arguments);
}

}  // namespace attune::ladder
