// Attention in float32: each operation is rounded, as torch rounds it. A matrix is a list of rows.

"use strict"; {

const { fround } = Math
const add = numbers => numbers.reduce((sum, number) => fround(sum + number), 0)
const dot = (one, other) => add(one.map((number, i) => fround(number * other[i])))

// A row of nothing but -Infinity becomes NaN.
function softmax(row) {
  const highest = Math.max(...row)
  const exponentials = row.map(score => fround(Math.exp(fround(score - highest))))
  const sum = add(exponentials)
  return exponentials.map(exponential => fround(exponential / sum))
}

globalThis.kernel = {
  add,
  softmax,
  float32: matrix => matrix.map(row => row.map(fround)),
  scores: (queries, keys) => queries.map(query => keys.map(key => dot(query, key))),
  mix: (weights, values) => weights.map(row => values[0].map((_, column) => dot(row, values.map(value => value[column])))),
}

}
