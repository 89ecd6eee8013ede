// The fields of a Variant or Config, listed once beside the kernel's host code:
//
//   template <>
//   inline constexpr auto jit::fields<Config> = jit::list(ATTUNE_FIELD(Config, warps), ATTUNE_FIELD(Config, stages));
//
// Text, comparison and hash follow from the list. A list that forgets a field, or has one twice, does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "jit/unit.hpp"

namespace attune::jit {

template <typename T, typename Member>
struct Field {
  std::string_view name;
  Member T::* member;
};
template <typename T, typename Member>
Field(std::string_view, Member T::*) -> Field<T, Member>;

#define ATTUNE_FIELD(type, name) \
  ::attune::jit::Field { #name, &type::name }

namespace fields_detail {

struct AnyMember {
  template <typename Member>
  constexpr operator Member() const;  // NOLINT: implicit on purpose, and never called
};

// How many members an aggregate has: as many initialisers as it takes.
template <typename T, typename... Initializers>
constexpr size_t member_count() {
  if constexpr (requires { T{Initializers{}..., AnyMember{}}; })
    return member_count<T, Initializers..., AnyMember>();
  else
    return sizeof...(Initializers);
}

// How many of the others are the same member.
template <typename T, typename Member, typename... Others>
constexpr int occurrences(Field<T, Member> field, Field<T, Others>... others) {
  const auto is_same = [&](const auto& other) {
    if constexpr (std::is_same_v<decltype(other.member), Member T::*>)
      return other.member == field.member;
    else
      return false;
  };
  return (int{is_same(others)} + ... + 0);
}

}  // namespace fields_detail

template <typename T, typename... Members>
consteval auto list(Field<T, Members>... all) {
  static_assert(sizeof...(Members) == fields_detail::member_count<T>(), "the list does not have every field once");
  if (((fields_detail::occurrences(all, all...) > 1) || ...)) throw "the list has a field twice";
  return std::tuple(all...);
}

// Specialised for every Variant and Config.
template <typename T>
inline constexpr auto fields = nullptr;

template <typename T>
concept HasFields = !std::is_same_v<decltype(fields<T>), const std::nullptr_t>;

// As designated initialisers: ".warps = 8, .turns = Turns::none". An enum of a kernel's own has a function
// initializer_of(value) in its namespace.
template <HasFields T>
std::string text_of(const T& value) {
  Initializer text;
  const auto add = [&](const auto& field) {
    using Member = std::remove_cvref_t<decltype(value.*field.member)>;
    if constexpr (std::is_enum_v<Member> && !std::is_same_v<Member, device::Dtype>)
      text.add_text(field.name, initializer_of(value.*field.member));
    else
      text.add(field.name, value.*field.member);
  };
  std::apply([&](const auto&... all) { (add(all), ...); }, fields<T>);
  return text.text();
}

template <HasFields T>
constexpr bool is_same(const T& a, const T& b) {
  return std::apply([&](const auto&... all) { return ((a.*all.member == b.*all.member) && ...); }, fields<T>);
}

// Equal for equal values, in this process and in every other.
template <HasFields T>
constexpr uint64_t hash_of(const T& value) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](auto field) {
    hash = (hash ^ static_cast<uint64_t>(field)) * 0x100000001b3u;
    hash ^= hash >> 29;
  };
  std::apply([&](const auto&... all) { (mix(value.*all.member), ...); }, fields<T>);
  return hash;
}

}  // namespace attune::jit
