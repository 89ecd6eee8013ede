// Device sources: comments, includes, embedding.
#include "jit/source.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/paths.hpp"

namespace attune::jit {
namespace {

TEST(WithoutComments, LeavesCodeAndNothingElse) {
  EXPECT_EQ(without_comments("int a;  // one\n\n  /* two\n lines */ int b;\n"), "int a;\nint b;\n");
  EXPECT_EQ(without_comments("a/**/b"), "a b\n");
  EXPECT_EQ(without_comments("a\t\t b \r\n\n\n c"), "a b\nc\n");
  EXPECT_EQ(without_comments("x // unterminated"), "x\n");
  EXPECT_EQ(without_comments("x /* unterminated"), "x\n");
}

TEST(WithoutComments, KnowsLiterals) {
  EXPECT_EQ(without_comments(R"(s = "// not  a comment";)"), "s = \"// not  a comment\";\n");
  EXPECT_EQ(without_comments(R"(s = "quote \" // still";)"), "s = \"quote \\\" // still\";\n");
  EXPECT_EQ(without_comments(R"(c = '"'; // gone)"), "c = '\"';\n");
  EXPECT_EQ(without_comments("n = 1'000'000; // gone"), "n = 1'000'000;\n");
  EXPECT_EQ(without_comments("n = 0xff'ff; c = '/'; /* gone */"), "n = 0xff'ff; c = '/';\n");
  EXPECT_EQ(without_comments("r = R\"x(a // \" b)\" /* c)x\"; // gone"), "r = R\"x(a // \" b)\" /* c)x\";\n");
}

TEST(WithoutComments, SameForSourcesThatDifferInCommentsOnly) {
  EXPECT_EQ(without_comments("int f() {\n  return 1;  // one\n}\n"),
            without_comments("// f\nint f() {\n\n  return  1;\n}"));
  EXPECT_NE(without_comments("int ab;"), without_comments("int a b;"));
}

TEST(Closure, FollowsKernelIncludesOnceEach) {
  const Scratch scratch;
  write_text(scratch / "kernels/a.cuh", "#include \"kernels/b.cuh\"\n#  include \"kernels/c.cuh\"\n");
  write_text(scratch / "kernels/b.cuh", "#include \"kernels/c.cuh\"\n#include <cstdint>\n#include \"core/x.hpp\"\n");
  write_text(scratch / "kernels/c.cuh", "// #include \"kernels/missing.cuh\"\n#include \"kernels/a.cuh\"\n");
  std::string order;
  for (const SourceFile& file : Sources(scratch.path).closure("#include \"kernels/a.cuh\"\n")) order += file.path + " ";
  EXPECT_EQ(order, "kernels/a.cuh kernels/b.cuh kernels/c.cuh ");
}

TEST(Closure, NamesTheFileThatIsMissing) {
  const Scratch scratch;
  try {
    Sources(scratch.path).closure("#include \"kernels/none.cuh\"");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_COMPILE_ERROR);
    EXPECT_NE(std::string(error.what()).find("kernels/none.cuh"), std::string::npos) << error.what();
  }
}

TEST(Embedded, IsTheCheckoutsText) {
  int files = 0;
  for (const EmbeddedFile* file = embedded_files; file->path != nullptr; ++file, ++files)
    EXPECT_EQ(Sources().read(file->path), Sources(test::repo()).read(file->path)) << file->path;
  EXPECT_GT(files, 0);
  EXPECT_THROW(Sources().read("kernels/none.cuh"), Error);
}

}  // namespace
}  // namespace attune::jit
