// How the pixels of all images are cut into tiles, and the tiles dealt out to the processors.

#pragma once

#include <algorithm>
#include <cstdint>

#include "hopper.h"

// A tile's pixels: w x h of n images, at most as many as a tile has columns. They are its columns in the order of an
// array (n, h, w). The tensor copy engine reads such a box at once, shifted by the filter position, with zeros outside.
struct Boxes {
  int w, h, n;
  int across, down;  // boxes side by side, and one below the other
  int64_t count;

  static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }
  // The next number of parts after `parts` that makes the parts of `size` smaller.
  static int64_t more(int64_t size, int64_t parts) {
    const int64_t part = up(size, parts);
    return part == 1 ? size + 1 : up(size, part - 1);
  }

  // The fewest boxes of at most `columns` pixels that cover everything, where boxes whose pixels are stored one by one
  // count a quarter more; of equals, the widest.
  static Boxes of(const Shape& s, int columns) {
    Boxes best{};
    for (int64_t across = up(s.width, columns); across <= s.width; across = more(s.width, across)) {
      const int64_t w = up(s.width, across);
      for (int64_t down = up(s.height, columns / w); down <= s.height; down = more(s.height, down)) {
        const int64_t h = up(s.height, down), n = std::min(columns / (w * h), s.batch);
        const Boxes boxes{static_cast<int>(w),      static_cast<int>(h),    static_cast<int>(n),
                          static_cast<int>(across), static_cast<int>(down), across * down * up(s.batch, n)};
        if (best.count == 0 || boxes.cost(s) < best.cost(s)) best = boxes;
      }
      if (best.cost(s) == 4 * up(s.pixels(), columns)) break;  // none can be better
    }
    return best;
  }

  int64_t cost(const Shape& s) const { return count * (run(s) == 1 ? 5 : 4); }
  // The most neighbouring columns, of 8, 4 and 1, that are always neighbours in an image too, aligned alike, and of
  // which all or none exist.
  int run(const Shape& s) const {
    const int64_t whole = w == s.width ? static_cast<int64_t>(w) * h : w, row = w == s.width ? s.image() : s.width;
    for (int length : {8, 4}) {
      if (whole % length == 0 && row % length == 0) return length;
    }
    return 1;
  }
};

// 64 channels of a tile of pixels are a unit of work. Two units of a tile are multiplied by the two warp groups of a
// block at one time, and share the pixels; alone, a unit takes half as long. So a processor gets one pair per turn
// while there are enough of them, and single units fill what would be left: none gets more than its share, rounded up.
struct Plan {
  int rows;     // units of a tile
  int pairs;    // pairs that stay together
  int split;    // units of pairs that do not, after those
  int singles;  // those, and the last units of tiles with an odd number
  int filled;   // `pairs`, rounded up to whole turns: where one is missing, there is time for two single units
  int slots;    // all turns of all processors

  static Plan of(int64_t tiles, int64_t rows, int64_t processors) {
    const int64_t all = tiles * (rows / 2), odd = rows % 2 * tiles, left = all % processors;
    Plan p{};
    const bool divide = 2 * left + odd <= processors;
    p.rows = static_cast<int>(rows);
    p.pairs = static_cast<int>(divide ? all - left : all);
    p.split = static_cast<int>(divide ? 2 * left : 0);
    p.singles = static_cast<int>(odd) + p.split;
    p.filled = static_cast<int>((p.pairs + processors - 1) / processors * processors);
    p.slots = p.filled + std::max(0, p.singles - 2 * (p.filled - p.pairs));
    return p;
  }

  // Units that the busiest of the processors multiplies.
  int64_t longest(int64_t processors) const {
    return 2 * (filled / processors) + (slots - filled + processors - 1) / processors;
  }

  struct Work {
    int tile, row, count;  // `count` units of the tile from `row` on; 0: nothing to do
  };

  // What is to be done in slot number `slot`, first (`turn` 0) and then (1).
  __device__ Work work(int slot, int turn) const {
    const int half = rows / 2;
    if (slot < pairs) return turn == 0 ? Work{slot / half, slot % half * 2, 2} : Work{};
    int single = 2 * (slot - pairs) + turn;
    if (slot >= filled) single = turn == 0 ? filled - 2 * pairs + slot : singles;
    if (single >= singles) return {};
    if (single >= split) return {single - split, rows - 1, 1};
    const int pair = pairs + single / 2;
    return {pair / half, pair % half * 2 + single % 2, 1};
  }
};

struct Tiling {
  int columns;  // of a tile
  Boxes boxes;
  Plan plan;

  // Relative time: what the busiest of the processors multiplies, where weights and stores count as 8 columns.
  int64_t time(const Shape& s, int64_t processors) const {
    return plan.longest(processors) * (columns + 8) * (boxes.run(s) == 1 ? 5 : 4);
  }

  // The best of those with room for the numbers; `columns` is 0 if none has. 256 columns fit images of powers of two,
  // 224 those whose sides are multiples of 7, 200 those of 5; and where turns are few, one of them fills the last best.
  static Tiling best(const Shape& s, int64_t unit_rows, int64_t processors) {
    Tiling best{};
    for (int columns : {256, 224, 200}) {
      const Boxes boxes = Boxes::of(s, columns);
      const int64_t rows = Boxes::up(s.out_channels, unit_rows);
      if (boxes.count * rows > INT32_MAX - 65536 || boxes.n * s.out_channels * s.image() > INT32_MAX) continue;
      const Tiling tiling{columns, boxes, Plan::of(boxes.count, rows, processors)};
      if (best.columns == 0 || tiling.time(s, processors) < best.time(s, processors)) best = tiling;
    }
    return best;
  }
};
