// Tables, durations and counts for people.
#include "lab/text.hpp"

#include <gtest/gtest.h>

namespace attune::lab {
namespace {

TEST(Text, TableAlignsItsColumns) {
  Table table({{"name"}, {"us", Table::Align::right}});
  table.add({"a", "1.5"});
  table.add({"longer", "120"});
  table.add({"bare"});
  EXPECT_EQ(table.text(), "name     us\na       1.5\nlonger  120\nbare\n");
}

TEST(Text, TableAsMarkdown) {
  Table table({{"name"}, {"us", Table::Align::right}});
  table.add({"a", "1.5"});
  EXPECT_EQ(table.markdown(), "| name | us |\n|---|---:|\n| a | 1.5 |\n");
}

TEST(Text, DurationsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(duration_text(1.234e-6), "1.23 us");
  EXPECT_EQ(duration_text(12.34e-6), "12.3 us");
  EXPECT_EQ(duration_text(456.7e-6), "457 us");
  EXPECT_EQ(duration_text(4.5678e-3), "4.57 ms");
  EXPECT_EQ(duration_text(1.2), "1.20 s");
  EXPECT_EQ(duration_text(4.5678e-3, 4.4e-3, 0.012), "4.57 ms [4.40, 12.0]");
}

TEST(Text, Counts) {
  EXPECT_EQ(counted(1, "check"), "1 check");
  EXPECT_EQ(counted(0, "check"), "0 checks");
}

}  // namespace
}  // namespace attune::lab
