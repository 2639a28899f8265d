// Prints, as JSON, how Lighthouse scores each address and which of its audits are not whole.

import { launch } from "chrome-launcher"
import lighthouse from "lighthouse"

const [chromePath, ...urls] = process.argv.slice(2)
const chrome = await launch({ chromePath, chromeFlags: ["--headless=new", "--no-sandbox", "--disable-gpu"] })
const settings = {
  port: chrome.port,
  onlyCategories: ["accessibility", "best-practices", "seo"],
  disableFullPageScreenshot: true,
  networkQuietThresholdMs: 0, // the pages are on this machine
  cpuQuietThresholdMs: 0,
}
const scores = {}
try {
  for (const url of urls) {
    const { lhr } = await lighthouse(url, settings)
    const faults = Object.values(lhr.audits).filter(({ score }) => score !== null && score < 1).map(({ id }) => id)
    const categories = Object.values(lhr.categories).map(({ id, score }) => [id, score])
    scores[url] = { ...Object.fromEntries(categories), faults }
  }
} finally {
  await chrome.kill()
}
console.log(JSON.stringify(scores))
