// Ways to spoil a right call, for the tables of wrong calls.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace attune::test {

// One field of the descriptor D or the arguments A.
template <typename D, typename A>
class Spoil {
 public:
  using Function = std::function<void(D&, A&)>;

  template <typename T>
  static Function set(T D::* field, std::type_identity_t<T> value) {
    return [=](D& desc, A&) { desc.*field = value; };
  }
  template <typename T>
  static Function set(T A::* field, std::type_identity_t<T> value) {
    return [=](D&, A& args) { args.*field = value; };
  }
  template <typename Strides>
  static Function set(Strides D::* strides, int64_t Strides::* step, int64_t value) {
    return [=](D& desc, A&) { desc.*strides.*step = value; };
  }
  template <typename T>
  static Function misalign(T* A::* pointer) {
    return [=](D&, A& args) { args.*pointer = std::bit_cast<T*>(std::bit_cast<uintptr_t>(args.*pointer) + 1); };
  }
};

}  // namespace attune::test
