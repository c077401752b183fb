package stripe

import "strings"

// currencies is the exponent, in Stripe's API, of every currency that Stripe takes:
// https://docs.stripe.com/currencies. Two decimals are the rule. Stripe departs from ISO 4217 where it says so: ISK and UGX
// are given with two decimals that are always 00, HUF and TWD are whole only in payouts, MGA is taken whole. Currencies that
// Stripe no longer offers stay while payments in them may be refunded.
var currencies = exponents(map[int]string{
	0: `bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf`,
	2: `aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd bwp byn bzd cad cdf chf cny cop crc cve
		czk dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gtq gyd hkd hnl hrk htg huf idr ils inr isk jmd kes kgs khr kyd
		kzt lak lbp lkr lrd lsl mad mdl mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr
		pln qar ron rsd rub sar sbd scr sek sgd shp sle sll sos srd std svc szl thb tjs top try ttd twd tzs uah ugx usd uyu
		uzs wst xcd xcg yer zar zmw`,
	3: `bhd jod kwd omr tnd`,
})

func exponents(of map[int]string) map[string]int {
	table := map[string]int{}
	for exponent, codes := range of {
		for _, code := range strings.Fields(codes) {
			table[code] = exponent
		}
	}
	return table
}

// stepOf is what every amount in the currency must be a multiple of: the card networks take two of the three decimals, and
// no fractions of a króna or a Ugandan shilling.
func stepOf(currency string) int64 {
	switch {
	case currencies[currency] == 3:
		return 10
	case currency == "isk", currency == "ugx":
		return 100
	default:
		return 1
	}
}
