# A run whose first save was killed before 'latest' was written holds a step by any name: --tag
# finds it, in every form.
for form in deepspeed native universal; do
	to=$form
	[ $form != deepspeed ] || to=
	zckpt reshard -q 2:2 "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" $form ${to:+--to $to} \
		--new-tag mine 2> /dev/null
	rm -f $form/latest $form/latest_universal
	zckpt inspect --tag mine $form | grep '^path\|^tag\|^chosen'
	zckpt inspect --tag other $form 2>&1 | head -n 1
done
