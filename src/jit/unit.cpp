#include "jit/unit.hpp"

#include <fmt/format.h>

namespace attune::jit {

std::string source_of(const DeviceUnit& unit) {
  std::string text = fmt::format("#include \"{}\"\n\nnamespace {} {{\n\n", unit.file, unit.scope);
  text += fmt::format("constexpr Variant variant = {{{}}};\nconstexpr Config config = {{{}}};\n\n", unit.variant,
                      unit.config);
  for (const LayoutFact& fact : unit.layout)
    text += fmt::format("static_assert({} == {}, \"host and device disagree\");\n", fact.expression, fact.value);
  text += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ Params params) {{\n"
      "  run<variant, config>(params);\n}}\n\n}}\n",
      unit.threads, unit.min_blocks_per_sm, entry_name);
  return text;
}

std::string label_of(const DeviceUnit& unit) {
  return fmt::format("{} {{{}}} {{{}}}", unit.name, unit.variant, unit.config);
}

Initializer& Initializer::add(std::string_view field, device::Dtype value) {
  switch (value) {
    case device::Dtype::f16:
      return add_text(field, "Dtype::f16");
    case device::Dtype::bf16:
      return add_text(field, "Dtype::bf16");
    case device::Dtype::f32:
      break;
  }
  return add_text(field, "Dtype::f32");
}

Initializer& Initializer::add_text(std::string_view field, std::string_view value) {
  text_ += fmt::format("{}.{} = {}", text_.empty() ? "" : ", ", field, value);
  return *this;
}

}  // namespace attune::jit
