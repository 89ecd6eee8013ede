// Whole numbers computed from the extents of a problem, as the header of a kernel file writes them: (q + 63) / 64, h,
// b.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace attune::lab {

using Variables = std::map<std::string, int64_t, std::less<>>;

// Operators of C: || && == != < <= > >= + - * / % !, unary -, brackets; min(a, b), max(a, b) and ceil_div(a, b). Throws
// ATTUNE_INVALID_ARGUMENT, which names the place, for what is no expression, an unknown name, a division by 0 and a
// number beyond 64 bits.
int64_t evaluate(std::string_view expression, const Variables& variables);

}  // namespace attune::lab
